//! What the end-to-end tests share: programs that end with their test, free ports, and waiting on
//! conditions instead of on time.

pub(crate) mod fleet;
pub(crate) mod http;
pub(crate) mod memory_store;
pub(crate) mod process;
pub(crate) mod proxy;
pub(crate) mod quiet;
pub(crate) mod receiver;
pub(crate) mod replay;
pub(crate) mod replicas;
pub(crate) mod servers;
pub(crate) mod conventions;
pub(crate) mod targets;

//! Configuration: read, merge, resolve, and collect every fault with file, line and key path.

//! The running daemon: builds the parts, owns the tasks, stops them in order.

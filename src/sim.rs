//! A fleet of clients, a dependency and a scraper: ground truth, no detection code.

//! The one integration-test binary; each module tells one part's story.

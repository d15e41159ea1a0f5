//! Has no content: a package must have a target.

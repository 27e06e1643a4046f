//! pointsman-build

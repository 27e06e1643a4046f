//! pointsman-sdk

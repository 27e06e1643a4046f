//! pointsman-policies

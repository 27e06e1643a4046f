//! pointsman-routing

//! pointsman-replay

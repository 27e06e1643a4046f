//! The HTTP front door, the selection service and the operator's view of a running router.

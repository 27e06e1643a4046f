//! Pointsman's decisions beside Dynamo's.

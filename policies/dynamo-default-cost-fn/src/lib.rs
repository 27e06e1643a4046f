//! dynamo-default-cost-fn

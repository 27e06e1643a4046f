//! Pointsman's policies for a frontend of NVIDIA Dynamo's: its plugin catalog.

#![forbid(unsafe_code)]
#![deny(missing_docs)]

use dynamo_kv_router::plugins::{RouterPluginRegistry, RouterPluginRegistryError};
use dynamo_runtime::error::{DynamoError, ErrorClass as DynamoClass};
use pointsman_dynamo::{ErrorClass, Refusal};

/// Adds the types `wasm` of worker selection and of request classifiers. What a classifier refuses is a `DynamoError`,
/// which the frontend answers by its class and its public message.
///
/// # Errors
/// The registry has a type `wasm` already.
pub fn register(registry: &mut RouterPluginRegistry) -> Result<(), RouterPluginRegistryError> {
    pointsman_dynamo::register_with(registry, None, |refusal| Box::new(dynamo_error(refusal)))
}

fn dynamo_error(refusal: Refusal) -> DynamoError {
    let Refusal { class, public_message, diagnostic } = refusal;
    let class = match class {
        ErrorClass::InvalidRequest => DynamoClass::InvalidRequest,
        ErrorClass::Unauthenticated => DynamoClass::Unauthenticated,
        ErrorClass::PermissionDenied => DynamoClass::PermissionDenied,
        ErrorClass::NotFound => DynamoClass::NotFound,
        ErrorClass::Conflict => DynamoClass::Conflict,
        ErrorClass::PayloadTooLarge => DynamoClass::PayloadTooLarge,
        ErrorClass::UnsupportedMedia => DynamoClass::UnsupportedMedia,
        ErrorClass::RateLimited => DynamoClass::RateLimited,
        ErrorClass::CapacityExhausted => DynamoClass::CapacityExhausted,
        ErrorClass::Unavailable => DynamoClass::Unavailable,
        ErrorClass::BackendProtocol => DynamoClass::BackendProtocol,
        ErrorClass::DeadlineExceeded => DynamoClass::DeadlineExceeded,
        ErrorClass::NotImplemented => DynamoClass::NotImplemented,
        ErrorClass::Internal => DynamoClass::Internal,
        ErrorClass::Cancelled => DynamoClass::Cancelled,
    };
    DynamoError::builder().class(class).public_message(public_message).diagnostic(diagnostic).build()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refusal_keeps_its_class_its_message_and_its_diagnostic() {
        for class in ErrorClass::ALL {
            let refusal = Refusal { class: *class, public_message: "later".to_owned(), diagnostic: "full".to_owned() };
            let error = dynamo_error(refusal);
            assert_eq!(error.class().as_str(), format!("{class:?}"));
            assert_eq!(error.public_message(), Some("later"));
            assert_eq!(error.diagnostic().unwrap().as_str(), "full");
        }
    }
}

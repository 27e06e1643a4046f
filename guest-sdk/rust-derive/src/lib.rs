//! The derive macro of `pointsman-sdk`, which re-exports and documents it.

#![forbid(unsafe_code)]
#![deny(missing_docs)]

mod attributes;
mod choice;
mod record;

use proc_macro2::TokenStream;
use quote::quote;
use syn::{Data, DeriveInput, Error, Fields, parse_macro_input};

// The documentation stands at the re-export, where its links and examples find the types.
#[allow(missing_docs, reason = "see above")]
#[proc_macro_derive(Parameters, attributes(parameter))]
pub fn parameters(input: proc_macro::TokenStream) -> proc_macro::TokenStream {
    let input = parse_macro_input!(input as DeriveInput);
    derive(&input).unwrap_or_else(Error::into_compile_error).into()
}

fn derive(input: &DeriveInput) -> Result<TokenStream, Error> {
    attributes::none(&input.attrs)?;
    if !input.generics.params.is_empty() {
        return Err(Error::new_spanned(&input.generics, "parameters take no generics"));
    }
    let items = match &input.data {
        Data::Struct(data) => match &data.fields {
            Fields::Named(fields) => record::items(input, fields)?,
            Fields::Unnamed(_) | Fields::Unit => {
                return Err(Error::new_spanned(&input.ident, "parameters are a struct with named fields"));
            }
        },
        Data::Enum(data) => choice::items(input, data)?,
        Data::Union(_) => return Err(Error::new_spanned(&input.ident, "parameters are a struct or an enum")),
    };
    Ok(quote! {
        #[allow(unused_comparisons, clippy::all, reason = "nobody reads it, and a bound may be the type's own")]
        const _: () = {
            use ::pointsman_sdk::__parameters as __sdk;
            #items
        };
    })
}

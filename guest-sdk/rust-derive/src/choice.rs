//! An enum of variants without fields: a text that is one of their names.

use proc_macro2::TokenStream;
use quote::quote;
use syn::ext::IdentExt;
use syn::{DataEnum, DeriveInput, Error, Fields, Variant};

use crate::attributes::{quoted, rename_of_variant};

pub(crate) fn items(input: &DeriveInput, data: &DataEnum) -> Result<TokenStream, Error> {
    let names = data.variants.iter().map(name).collect::<Result<Vec<_>, Error>>()?;
    for (place, (name, variant)) in names.iter().zip(&data.variants).enumerate() {
        if names.iter().take(place).any(|before| before == name) {
            return Err(Error::new_spanned(variant, format!("another variant is named `{name}`")));
        }
    }
    let variants: Vec<_> = data.variants.iter().map(|variant| &variant.ident).collect();
    let Some((last, others)) = variants.split_last() else {
        return Err(Error::new_spanned(&input.ident, "an enum without variants has no value"));
    };
    let (ident, places) = (&input.ident, 0..others.len());
    let is_default = |variant: &&Variant| variant.attrs.iter().any(|attribute| attribute.path().is_ident("default"));
    let default = names.iter().zip(&data.variants).find(|(_, variant)| is_default(variant)).map(|(name, _)| {
        let json = quoted(name);
        quote!(const DEFAULT: ::core::option::Option<&'static str> = ::core::option::Option::Some(#json);)
    });
    Ok(quote! {
        const NAMES: &[&str] = &[#(#names),*];

        #[automatically_derived]
        impl __sdk::Parameter for #ident {
            const SCHEMA: &'static __sdk::Schema = &__sdk::Schema::Choice(NAMES);
            #default

            fn read(reader: &mut __sdk::Reader<'_>) -> ::core::result::Result<Self, __sdk::Problem> {
                ::core::result::Result::Ok(match reader.choice(NAMES)? {
                    #(#places => Self::#others,)*
                    _ => Self::#last,
                })
            }
        }
    })
}

fn name(variant: &Variant) -> Result<String, Error> {
    if !matches!(variant.fields, Fields::Unit) {
        return Err(Error::new_spanned(variant, "a variant has no fields here"));
    }
    Ok(rename_of_variant(&variant.attrs)?.unwrap_or_else(|| kebab_case(&variant.ident.unraw().to_string())))
}

/// `AtRandom` as `at-random`.
fn kebab_case(name: &str) -> String {
    let mut kebab = String::new();
    for char in name.chars() {
        if char.is_uppercase() && !kebab.is_empty() {
            kebab.push('-');
        }
        kebab.extend(char.to_lowercase());
    }
    kebab
}

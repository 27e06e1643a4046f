//! A struct with named fields.

use proc_macro2::{Span, TokenStream};
use quote::{format_ident, quote, quote_spanned};
use syn::spanned::Spanned;
use syn::{DeriveInput, Error, FieldsNamed, Ident, Type};

use crate::attributes::{Attributes, DefaultValue, description};

/// One field: its variable, its type and its place in the list.
struct Field<'a> {
    ident: &'a Ident,
    variable: Ident,
    of: &'a Type,
    name: String,
    description: String,
    attributes: Attributes,
}

pub(crate) fn items(input: &DeriveInput, fields: &FieldsNamed) -> Result<TokenStream, Error> {
    let fields = fields.named.iter().enumerate().map(|(place, field)| Field::new(place, field));
    let fields: Vec<Field<'_>> = fields.collect::<Result<_, Error>>()?;
    for (place, field) in fields.iter().enumerate() {
        if fields.iter().take(place).any(|before| before.name == field.name) {
            return Err(Error::new_spanned(field.ident, format!("another field is named `{}`", field.name)));
        }
    }
    let (ident, title, description) = (&input.ident, input.ident.to_string(), description(&input.attrs));
    let entries = fields.iter().map(Field::entry);
    let variables = fields.iter().map(|field| &field.variable);
    let reads = fields.iter().map(Field::read).collect::<Result<Vec<_>, Error>>()?;
    let reads = reads.iter().enumerate().map(|(place, read)| quote!(#place => #read,));
    let values = fields.iter().map(Field::value);
    Ok(quote! {
        const FIELDS: &[__sdk::Field] = &[#(#entries),*];

        #[automatically_derived]
        impl __sdk::Parameter for #ident {
            const SCHEMA: &'static __sdk::Schema =
                &__sdk::Schema::Object(&__sdk::Object { title: #title, description: #description, fields: FIELDS });

            fn read(reader: &mut __sdk::Reader<'_>) -> ::core::result::Result<Self, __sdk::Problem> {
                #(let mut #variables = ::core::option::Option::None;)*
                reader.fields(FIELDS, &mut |reader, place| {
                    match place {
                        #(#reads)*
                        _ => {}
                    }
                    ::core::result::Result::Ok(())
                })?;
                ::core::result::Result::Ok(Self { #(#values),* })
            }
        }

        #[automatically_derived]
        impl __sdk::Parameters for #ident {}
    })
}

impl<'a> Field<'a> {
    fn new(place: usize, field: &'a syn::Field) -> Result<Self, Error> {
        let attributes = Attributes::of_field(&field.attrs)?;
        let ident = field.ident.as_ref().ok_or_else(|| Error::new_spanned(field, "this field has no name"))?;
        Ok(Self {
            ident,
            variable: format_ident!("field_{place}"),
            of: &field.ty,
            name: attributes.name(ident),
            description: description(&field.attrs),
            attributes,
        })
    }

    /// The field's entry in the list.
    fn entry(&self) -> TokenStream {
        let Self { of, name, description, attributes, .. } = self;
        let schema = quote!(<#of as __sdk::Parameter>::SCHEMA);
        let (required, default) = match &attributes.default {
            None => (quote!(!#schema.is_nullable()), quote!(::core::option::Option::None)),
            Some(DefaultValue::OfType) => (quote!(false), quote!(<#of as __sdk::Parameter>::DEFAULT)),
            Some(DefaultValue::Is(literal)) => {
                let json = &literal.text;
                (quote!(false), quote!(::core::option::Option::Some(#json)))
            }
        };
        let range = attributes.bounds.iter().map(|bound| bound.keyword());
        quote! {
            __sdk::Field {
                name: #name,
                description: #description,
                schema: #schema,
                required: #required,
                default: #default,
                range: &[#(#range),*],
            }
        }
    }

    /// Reads the field into its variable.
    fn read(&self) -> Result<TokenStream, Error> {
        let Self { variable, of, attributes, .. } = self;
        let value = if attributes.bounds.is_empty() {
            quote!(<#of as __sdk::Parameter>::read(reader)?)
        } else {
            let (number, rule) = (Ident::new("number", Span::mixed_site()), attributes.rule());
            let checks = attributes.bounds.iter().map(|bound| bound.check(&number)).collect::<Result<Vec<_>, _>>()?;
            // The compiler points to the type where it has no bounds.
            let at = Span::call_site().located_at(of.span());
            quote_spanned!(at=> __sdk::read_within::<#of>(reader, |#number| #(#checks)&&*, #rule)?)
        };
        Ok(quote!(#variable = ::core::option::Option::Some(#value)))
    }

    /// The field of the struct, from its variable.
    fn value(&self) -> TokenStream {
        let Self { ident, variable, name, attributes, .. } = self;
        match &attributes.default {
            None => quote!(#ident: __sdk::given(#variable, #name)?),
            Some(DefaultValue::OfType) => quote!(#ident: #variable.unwrap_or_default()),
            Some(DefaultValue::Is(literal)) => {
                let value = literal.value_of();
                quote!(#ident: #variable.unwrap_or_else(|| #value))
            }
        }
    }
}

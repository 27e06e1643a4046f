//! A function of the contract that one guest exports, and what it takes.

use std::marker::PhantomData;

use pointsman_contract::Ticket;
use wasmtime::Store;
use wasmtime::component::{ComponentExportIndex, ComponentNamedList, Func, Instance, Lift, Lower, TypedFunc};

use crate::classifier_records::{EventRecord, ProgressRecord};
use crate::guest::State;
use crate::text::sentence;

/// A function that is not the contract's, and why.
pub(crate) type Mismatch = (String, String);

/// The parameters of a function: one type of the contract, whatever they borrow.
pub(crate) trait Params {
    type Of<'a>: ComponentNamedList + Lower;
}

type Texts<'a> = Option<&'a [Option<String>]>;

/// Of every stage: the rows, the numbers, the workers' numbers and the texts.
pub(crate) struct StageParams;

impl Params for StageParams {
    type Of<'a> = (u32, &'a [f64], Option<&'a [u32]>, Texts<'a>);
}

/// Of `classify`.
pub(crate) struct ClassifyParams;

impl Params for ClassifyParams {
    type Of<'a> = (Ticket, &'a [f64], Texts<'a>);
}

/// Of `on-event`: the event and the time.
pub(crate) struct EventParams;

impl Params for EventParams {
    type Of<'a> = (EventRecord, f64);
}

/// Of `on-tick`: the time and the progress.
pub(crate) struct TickParams;

impl Params for TickParams {
    type Of<'a> = (f64, &'a [ProgressRecord]);
}

/// A function that may answer an error, of a type that is checked.
pub(crate) struct Function<P, R> {
    func: Func,
    types: PhantomData<fn(P) -> R>,
}

impl<P: Params, R> Function<P, R>
where
    (Result<R, String>,): ComponentNamedList + Lift,
{
    /// Finds the function and checks its type.
    pub(crate) fn find(
        store: &mut Store<State>,
        instance: &Instance,
        export: &ComponentExportIndex,
        name: &str,
    ) -> Result<Self, Mismatch> {
        let typed = typed::<P::Of<'static>, (Result<R, String>,)>(store, instance, export, name)?;
        Ok(Self { func: *typed.func(), types: PhantomData })
    }

    /// One call. The parameters may borrow, where a `TypedFunc` that is kept would have to own them or to name their
    /// lifetime.
    #[expect(unsafe_code, reason = "the type was checked before")]
    pub(crate) fn call(&self, store: &mut Store<State>, params: P::Of<'_>) -> wasmtime::Result<Result<R, String>> {
        // SAFETY: `find` has checked these types, which differ in nothing but a lifetime.
        let typed = unsafe { TypedFunc::<P::Of<'_>, (Result<R, String>,)>::new_unchecked(self.func) };
        typed.call(store, params).map(|(answer,)| answer)
    }
}

/// A function of any type.
pub(crate) fn typed<P, R>(
    store: &mut Store<State>,
    instance: &Instance,
    export: &ComponentExportIndex,
    name: &str,
) -> Result<TypedFunc<P, R>, Mismatch>
where
    P: ComponentNamedList + Lower,
    R: ComponentNamedList + Lift,
{
    instance.get_typed_func(store, export).map_err(|error| (name.to_owned(), sentence(&format!("{error:#}"))))
}

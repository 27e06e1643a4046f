//! The macro that exports a policy.

/// Exports a policy as a component, with any of its stages `filter`, `scorer` and `picker`, and with `classifier` or
/// `async_classifier` for a [`Classifier`](crate::Classifier) or an [`AsyncClassifier`](crate::AsyncClassifier):
///
/// ```ignore
/// pointsman_sdk::export!(MyPolicy: filter, scorer, picker);
/// pointsman_sdk::export!(MyAdmission: classifier);
/// pointsman_sdk::export!(MyBoth: scorer, picker, classifier);
/// ```
///
/// Built for WebAssembly, the crate (a `cdylib`) exports the contract's `policy`, the stages listed, and where there is
/// more than one of worker selection `worker-selector`, which runs them in one crossing.
///
/// A policy may be a classifier and a worker selection in one component. A host may keep a guest for each, so they tell
/// each other nothing but what the contract carries: an admission's target is the affinity target of the selection.
///
/// Everywhere else the macro only says which stages there are, for [`testkit`](crate::testkit) and
/// [`native`](crate::native). The policy's version is its crate's.
#[macro_export]
macro_rules! export {
    ($policy:ty: $($stage:ident),+ $(,)?) => {
        impl $crate::Exported for $policy {
            const VERSION: &'static str = ::core::env!("CARGO_PKG_VERSION");
            const STAGES: $crate::Stages = {
                let mut stages =
                    $crate::Stages { filter: false, score: false, pick: false, select: false, classify: false };
                $($crate::__mark!(stages $stage);)+
                stages.select = stages.filter as u8 + stages.score as u8 + stages.pick as u8 > 1;
                stages
            };
            type Reactor = $crate::__reactor!($($stage)+);
            $($crate::__forward!($stage);)+
        }
        $crate::__component!($policy: $($stage),+);
    };
}

#[doc(hidden)]
#[macro_export]
macro_rules! __mark {
    ($stages:ident filter) => {
        $stages.filter = true
    };
    ($stages:ident scorer) => {
        $stages.score = true
    };
    ($stages:ident picker) => {
        $stages.pick = true
    };
    ($stages:ident classifier) => {
        $stages.classify = true
    };
    ($stages:ident async_classifier) => {
        $stages.classify = true
    };
    ($stages:ident $other:ident) => {
        ::core::compile_error!(::core::concat!(
            "unknown stage `",
            ::core::stringify!($other),
            "`; use filter, scorer, picker, classifier or async_classifier"
        ))
    };
}

/// What runs the classifier among the stages.
#[doc(hidden)]
#[macro_export]
macro_rules! __reactor {
    () => { $crate::__reactors::NoClassifier };
    (classifier $($rest:ident)*) => { $crate::__reactors::Direct };
    (async_classifier $($rest:ident)*) => { $crate::__reactors::Tasks };
    ($other:ident $($rest:ident)*) => { $crate::__reactor!($($rest)*) };
}

#[doc(hidden)]
#[macro_export]
macro_rules! __forward {
    (filter) => {
        fn filter_reads(&self) -> $crate::Reads {
            <Self as $crate::Filter>::reads(self)
        }

        fn run_filter(
            &mut self,
            request: &$crate::Request<'_>,
            candidates: &$crate::Candidates<'_>,
            keep: &mut [bool],
        ) -> ::core::result::Result<(), $crate::PolicyError> {
            <Self as $crate::Filter>::keep(self, request, candidates, keep)
        }
    };
    (scorer) => {
        fn scorer_reads(&self) -> $crate::Reads {
            <Self as $crate::Scorer>::reads(self)
        }

        fn run_scorer(
            &mut self,
            request: &$crate::Request<'_>,
            candidates: &$crate::Candidates<'_>,
            costs: &mut [f64],
        ) -> ::core::result::Result<(), $crate::PolicyError> {
            <Self as $crate::Scorer>::score(self, request, candidates, costs)
        }
    };
    (picker) => {
        fn picker_reads(&self) -> $crate::Reads {
            <Self as $crate::Picker>::reads(self)
        }

        fn run_picker(
            &mut self,
            request: &$crate::Request<'_>,
            candidates: &$crate::Candidates<'_>,
        ) -> ::core::result::Result<usize, $crate::PolicyError> {
            <Self as $crate::Picker>::pick(self, request, candidates)
        }
    };
    ($other:ident) => {};
}

#[cfg(not(target_family = "wasm"))]
#[doc(hidden)]
#[macro_export]
macro_rules! __component {
    ($($ignored:tt)*) => {};
}

#[cfg(target_family = "wasm")]
#[doc(hidden)]
#[macro_export]
macro_rules! __component {
    ($policy:ty: $($stage:ident),+) => {
        const _: () = {
            struct Component;

            ::std::thread_local! {
                static SLOT: $crate::wasm::Slot<$policy> = const { $crate::wasm::Slot::empty() };
            }

            impl $crate::wasm::Component for Component {
                type Policy = $policy;

                fn with_slot<R>(run: impl ::core::ops::FnOnce(&$crate::wasm::Slot<$policy>) -> R) -> R {
                    SLOT.with(run)
                }
            }

            $crate::wasm::policy::export!(Component with_types_in $crate::wasm::policy);
            $crate::__export!(Component [] $($stage)+);
        };
    };
}

/// Exports one stage after the other; in brackets, those of worker selection so far.
#[cfg(target_family = "wasm")]
#[doc(hidden)]
#[macro_export]
macro_rules! __export {
    ($component:ident []) => {};
    ($component:ident [$one:ident]) => {};
    ($component:ident [$($several:ident)+]) => {
        $crate::wasm::selector::export!($component with_types_in $crate::stages);
    };
    ($component:ident [$($before:ident)*] classifier $($rest:ident)*) => {
        $crate::wasm::classifier::export!($component with_types_in $crate::wasm::classifier);
        $crate::__export!($component [$($before)*] $($rest)*);
    };
    ($component:ident [$($before:ident)*] async_classifier $($rest:ident)*) => {
        $crate::__export!($component [$($before)*] classifier $($rest)*);
    };
    ($component:ident [$($before:ident)*] $stage:ident $($rest:ident)*) => {
        $crate::wasm::$stage::export!($component with_types_in $crate::stages);
        $crate::__export!($component [$($before)* $stage] $($rest)*);
    };
}

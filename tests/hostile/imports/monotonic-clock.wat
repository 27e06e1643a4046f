;; attack: Imports a clock fine enough to time its neighbours with.
;; expect: load -> not-granted

;; in component:
(import "wasi:clocks/monotonic-clock@0.2.0" (instance (export "now" (func (result u64)))))

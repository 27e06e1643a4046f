;; attack: Imports the wall clock.
;; expect: load -> not-granted

;; in component:
(import "wasi:clocks/wall-clock@0.2.0" (instance (export "now" (func (result u64)))))

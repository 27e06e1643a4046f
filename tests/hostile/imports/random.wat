;; attack: Imports randomness that nobody can replay.
;; expect: load -> not-granted

;; in component:
(import "wasi:random/random@0.2.0" (instance (export "get-random-u64" (func (result u64)))))

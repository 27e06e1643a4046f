;; attack: Imports the standard output.
;; expect: load -> not-granted

;; in component:
(import "wasi:cli/stdout@0.2.0" (instance (export "get-stdout" (func (result u32)))))

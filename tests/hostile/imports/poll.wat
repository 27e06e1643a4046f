;; attack: Imports waiting.
;; expect: load -> not-granted

;; in component:
(import "wasi:io/poll@0.2.0" (instance (export "poll" (func (param "in" (list u32))))))

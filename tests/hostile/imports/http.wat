;; attack: Imports outgoing HTTP.
;; expect: load -> imports

;; in component:
(import "wasi:http/outgoing-handler@0.2.0" (instance (export "handle" (func (param "request" u32)))))

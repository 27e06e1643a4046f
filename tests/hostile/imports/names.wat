;; attack: Imports name resolution.
;; expect: load -> imports

;; in component:
(import "wasi:sockets/ip-name-lookup@0.2.0" (instance (export "resolve" (func (param "name" string)))))

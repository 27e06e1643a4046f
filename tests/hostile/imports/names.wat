;; attack: Imports name resolution.
;; expect: load -> not-granted

;; in component:
(import "wasi:sockets/ip-name-lookup@0.2.0" (instance (export "resolve" (func (param "name" string)))))

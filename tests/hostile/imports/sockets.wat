;; attack: Imports network sockets.
;; expect: load -> not-granted

;; in component:
(import "wasi:sockets/tcp@0.2.0" (instance (export "connect" (func (param "port" u16)))))

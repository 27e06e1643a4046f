;; attack: Imports the end of the process.
;; expect: load -> not-granted

;; in component:
(import "wasi:cli/exit@0.2.0" (instance (export "exit" (func (param "status" u8)))))

;; attack: Imports the environment and the arguments of the process.
;; expect: load -> not-granted

;; in component:
(import "wasi:cli/environment@0.2.0" (instance (export "get-environment" (func (result (list (tuple string string)))))))

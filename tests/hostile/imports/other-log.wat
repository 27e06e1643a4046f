;; attack: Imports a log of another version of the contract.
;; expect: load -> imports

;; in component:
(import "pointsman:policy/log@0.1.1" (instance (export "log" (func (param "message" string)))))

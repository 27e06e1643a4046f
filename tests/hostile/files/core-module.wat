;; attack: A core module with the contract's names.
;; expect: load -> core-module

;; in file:
(module (func (export "pointsman:policy/policy@0.1.0")))

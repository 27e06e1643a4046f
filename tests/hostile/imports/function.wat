;; attack: Imports a function without an interface.
;; expect: load -> imports

;; in component:
(import "system" (func (param "command" string)))

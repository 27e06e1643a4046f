;; attack: Imports a component, code that nobody has checked.
;; expect: load -> imports

;; in component:
(import "code" (component))

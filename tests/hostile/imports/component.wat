;; attack: Imports a component, code that nobody has checked.
;; expect: load -> invalid

;; in component:
(import "code" (component))

;; attack: Imports a core module, code that nobody has checked.
;; expect: load -> imports

;; in component:
(import "code" (core module))

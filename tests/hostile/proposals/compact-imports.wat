;; attack: Uses imports that share the name of their module, which no policy needs.
;; expect: load -> invalid
;; proposal: COMPACT_IMPORTS

;; in component:
(core module (import "m" (item "a" (func)) (item "b" (func))))

;; attack: Uses names with nested namespaces, which no policy needs.
;; expect: load -> invalid
;; proposal: CM_NESTED_NAMES

;; in component:
(import "a:b:c/d" (instance))

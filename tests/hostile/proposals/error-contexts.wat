;; attack: Uses error contexts of the component model, which no policy needs.
;; expect: load -> invalid
;; proposal: CM_ERROR_CONTEXT

;; in component:
(type (list error-context))

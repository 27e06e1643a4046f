;; attack: Uses error contexts of the component model, which no policy needs.
;; expect: load -> invalid

;; in component:
(type (list error-context))

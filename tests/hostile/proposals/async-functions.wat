;; attack: Uses asynchronous functions of the component model, which no policy needs.
;; expect: load -> invalid

;; in component:
(type (func async (result u32)))

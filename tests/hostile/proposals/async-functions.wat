;; attack: Uses asynchronous functions of the component model, which no policy needs.
;; expect: load -> invalid
;; proposal: CM_ASYNC

;; in component:
(type (func async (result u32)))

;; attack: Uses streams of the component model, which no policy needs.
;; expect: load -> invalid
;; proposal: CM_ASYNC

;; in component:
(type (stream u32))

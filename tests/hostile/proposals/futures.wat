;; attack: Uses futures of the component model, which no policy needs.
;; expect: load -> invalid
;; proposal: CM_ASYNC

;; in component:
(type (future u32))

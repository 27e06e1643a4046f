;; attack: Uses threads of the component model, which no policy needs.
;; expect: load -> invalid
;; proposal: CM_THREADING

;; in component:
(core func (canon thread.index))

;; attack: Uses maps of the component model, which no policy needs.
;; expect: load -> invalid
;; proposal: CM_MAP

;; in component:
(type (map string u32))

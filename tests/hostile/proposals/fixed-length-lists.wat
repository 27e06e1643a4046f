;; attack: Uses lists of fixed length of the component model, which no policy needs.
;; expect: load -> invalid
;; proposal: CM_FIXED_LENGTH_LISTS

;; in component:
(type (list u32 4))

;; attack: Uses maps of the component model, which no policy needs.
;; expect: load -> invalid

;; in component:
(type (map string u32))

;; attack: Uses futures of the component model, which no policy needs.
;; expect: load -> invalid

;; in component:
(type (future u32))

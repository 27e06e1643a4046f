;; attack: Uses streams of the component model, which no policy needs.
;; expect: load -> invalid

;; in component:
(type (stream u32))

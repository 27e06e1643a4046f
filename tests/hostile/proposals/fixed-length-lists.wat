;; attack: Uses lists of fixed length of the component model, which no policy needs.
;; expect: load -> invalid

;; in component:
(type (list u32 4))

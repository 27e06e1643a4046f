;; attack: The first 90 % of a good policy.
;; expect: load -> invalid
;; bytes: cut 90

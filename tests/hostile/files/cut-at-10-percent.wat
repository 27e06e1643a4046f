;; attack: The first 10 % of a good policy.
;; expect: load -> invalid
;; bytes: cut 10
